"""Our verifiers in the trainers that people already have: one module a framework, imported only where it is used.

Behind each stands `r1zero.verify_many`: killable workers, a deadline, typed outcomes. A verdict of `error` (ours, never
the model's) and a timeout have no score to give; each module says what its framework takes in their place.
"""
