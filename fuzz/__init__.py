"""`make fuzz`: damaged answers and control messages, given to the code that uses them.

A finding is an exception that is not in the tree of `mirrormaker.errors`, more than a second of CPU time for one answer, or
more than 64 MB of memory beyond the size of the answer. A conversation of up to 400 answers may take five seconds.
The answers were recorded once from real brokers (`fuzz/answers.jsonl`), so no broker is needed to run this.
"""
