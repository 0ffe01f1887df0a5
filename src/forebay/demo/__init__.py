"""The main job on one machine without a GPU: real engines, a real storm, with Forebay and without.

Two llama.cpp servers share this machine's cores as two models share a GPU. `forebay.demo.run`
starts them and the gateway, `forebay.demo.load` puts the load on, `forebay.demo.report` says what
came out.
"""
