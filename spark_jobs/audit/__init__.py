"""The delivery audit: prove from the logs that every message was delivered, once and on time.

`command` -> `delivery` -> `shard` and `join`: steps that run on Spark or in this process; `checks`
compares, `facts` has what is read and what is found, `report` writes the files.
"""
