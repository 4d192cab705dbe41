"""What the audit's steps give each other: findings, results, records, sums."""
