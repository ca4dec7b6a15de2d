"""How far a consumer group is: the offset checker."""
