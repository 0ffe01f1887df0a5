from dataclasses import replace

from forebay import sim
from forebay.core.limits.gradient_aimd import GradientAimd

chat = sim.endpoint("chat", floor=2, ceiling=16)
embed = sim.endpoint("embed", interactive=False, ceiling=16)

storm = sim.Scenario(
    servers={chat: sim.LlmSpec(), embed: sim.EncoderSpec()},  # both on the GPU named "gpu"
    budgets={"gpu": 6},
    loads=[
        sim.Open(model="chat", rate=sim.steady(0.5), sizes=sim.lognormal(300, 60, sigma=1.0)),
        sim.Closed(model="embed", workers=32, sizes=sim.fixed(640, texts=16)),
    ],
)
adaptive = replace(storm, law=lambda endpoint: GradientAimd(endpoint.floor, endpoint.ceiling))

for name, scenario in (("fixed", storm), ("gradient_aimd", adaptive)):
    record = scenario.run(600.0, seed=1)
    first_s = record.select("chat", since=60.0).first_token_s(0.95)
    per_s = record.select("embed", since=60.0).requests_per_s
    print(f"{name}: first token p95 {first_s:.2f} s, {per_s:.1f} embedding requests/s")
