"""The offset map on the target: the topic that it is kept in, and what a running mirror writes there."""
