"""HTTP clients whose requests are governed in this process: no gateway, and no port.

Theory of operation. A client of httpx hands each request to its transport (`transports`), which
hands it to the data plane, the gateway's own (`inside`). That serves it in the session's loop, as
it serves what comes over a connection; the answer (`reply`) goes piece by piece to whoever reads
it, in any thread and any loop. Who closes an answer, or lets it be collected, ends its request.
"""
