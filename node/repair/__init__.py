"""When bytes of this node are damaged: found, asked of peers, written again (decision 0019).

`damage_control` is what the master does about messages that it cannot read; `peers` and
`peer_reads` are the two ends of asking; `file_repair` rewrites files; `scrubber` looks where none
reads.
"""
