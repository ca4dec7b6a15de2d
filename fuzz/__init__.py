"""Damaged answers and control messages: `make fuzz` gives them to the code that uses them, and nothing may get out of hand.

A finding is an exception that is not in the tree of `mirrormaker.errors`, more than a second of CPU time, or more than 64 MB
of memory beyond the size of the answer. The answers were recorded once from a real broker (`fuzz/answers.jsonl`), so no broker
is needed to run this.
"""
