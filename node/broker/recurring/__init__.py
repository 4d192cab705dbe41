"""Messages that recur: when, who may change that, and publishing each in time.

Times are computed here and nowhere else; what was computed is in the log.
"""
