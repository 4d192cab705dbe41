"""Commands that speak HTTP: the gateway, and webhooks."""
