"""View models: typed values that templates only print. No queries, no decisions about advice."""
