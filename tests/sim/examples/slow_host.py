from forebay import sim

fast, slow = (sim.endpoint("bge-m3", group=host, interactive=False) for host in ("new", "old"))
servers = {
    fast: sim.FifoSpec(8, lambda _tokens: 0.1),  # 80 requests/s
    slow: sim.FifoSpec(8, lambda _tokens: 0.4),  # 20 requests/s
}
backlog = sim.Closed(model="bge-m3", workers=64, sizes=sim.fixed(500))
record = sim.Scenario(servers=servers, loads=[backlog]).run(120.0, seed=1)

for host in (fast, slow):
    answered = [r for r in record.requests if r.endpoint == host.id and r.ok]
    print(f"{host.id}: {len(answered) / 120.0:.1f} requests/s")
