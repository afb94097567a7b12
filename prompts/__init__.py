"""Prompt templates: a question and a template in, the prompt's text and token ids out.

problem -> [prompt] -> rollout. A template is a text file in this folder, or any file named by its path: a header of
`key: value` lines, a line `---`, and a body that holds `{question}` once. The same object serves training and
evaluation. See `template.py` for the keys.
"""

from r1zero.prompts.template import Template, load, names, parse

__all__ = ["Template", "load", "names", "parse"]
