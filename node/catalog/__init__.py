"""Topics, groups and subscriptions: `service` proposes changes, `listing` tells what there is.

What they are lies in the log as CONFIG records (`storage.views.catalog`); `name_expiry`
removes what was made automatically and is not used.
"""
