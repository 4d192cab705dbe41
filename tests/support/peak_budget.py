"""A budget of answers that remembers how much was held."""

from node.contracts.answer_budget import AnswerBudget


class PeakBudget(AnswerBudget):
    """Remembers the most that was held."""

    peak_bytes = 0

    def take(self, size_bytes: int) -> None:
        super().take(size_bytes)
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
