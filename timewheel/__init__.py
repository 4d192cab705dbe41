"""Rules of time: the persisted multi-level wheel and the dispatch cursor. Pure over a Disk port."""
