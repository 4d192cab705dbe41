"""`hourwheel repair`: repairs a node alone that is damaged, and whose log was trimmed.

Such a node does not start, because its views cannot be built again (decision 0019). `images` reads
files and puts flipped bits right, `runs` and `queue_chunks` salvage what is left of larger damage,
`survey` finds what is lost, `carry_out` writes, `command` asks and tells.
"""
