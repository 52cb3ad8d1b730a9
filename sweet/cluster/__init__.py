"""Distributes work over the nodes of a Ray cluster.

`nodes` joins the cluster and lists its nodes, `worker` is the actor that runs on each of them, and `scheduler` assigns
chunks of items to the workers and collects the results.

The package does not know what the work is: it maps items to results, one for each item in the same order. The caller
provides a factory that opens the work (a sandbox with its scorer, browsers, a critic) on a node.
"""
