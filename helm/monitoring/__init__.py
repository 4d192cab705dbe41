"""Dashboards as code: what Grafana shows of Hourwheel, made by `make pages`.

`panels` makes JSON of one panel, `dashboards` says which panels there are, and `__main__` writes
helm/hourwheel/files/dashboards. Beside them lies `alerts.yaml`, which is written by hand.
"""
