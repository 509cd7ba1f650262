"""Traffic for any OpenAI-compatible server: plan it, send it, stamp it, judge the client itself.

`plan` fixes every request before the first is sent, `driver` sends (open loop by intended times, or
closed loop), `client` is the HTTP side, `stream` reads what arrived afterwards, `selfcheck` says
whether the client was the bottleneck, `mock` is a server to measure the client with.
"""
