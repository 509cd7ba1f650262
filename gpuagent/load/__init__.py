"""Traffic for any OpenAI-compatible server: plan it, send it, stamp it, judge the client itself.

`plan` makes every request from a seed, `driver` sends (open loop by intended times, or closed
loop), `locust_run` lets Locust's users send instead, `client` is the HTTP side, `stream` and
`records` read what arrived afterwards, `selfcheck` says whether the client was the bottleneck,
`report` and `boundary` judge, `mock` is a server to measure the client with.
"""
