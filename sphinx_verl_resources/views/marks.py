"""The placeholders of remarks: what a page keeps of them between reading and writing."""

from __future__ import annotations

from docutils import nodes


class verl_marks(nodes.Inline, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """Marks still to be numbered.

    Attributes:
        remarks: names of the remarks that they lead to.
    """


class verl_remarks(nodes.General, nodes.Element):  # noqa: N801
    """A list still to be numbered: a sentence, then one paragraph for each remark, then one that ends it.

    Attributes:
        remarks: their names, in the order of the paragraphs.
    """
