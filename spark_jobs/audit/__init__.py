"""The delivery audit: prove from the logs that every message was delivered, once and on time.

`command` -> `delivery` -> `shard` and `join`: steps that run on Spark or in this process; `checks`
has what is compared, `facts` what is told, `report` what is left behind.
"""
