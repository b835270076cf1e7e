"""Measurements. ``python -m bench`` runs the parts of the benchmark, ``python -m bench report`` renders them.

``parts`` lists them; each is a few ``Entry`` that ``rounds`` runs in alternation. ``contestants`` starts a system,
``contest`` holds the clock, ``checks`` says whether the answer was right, ``figures`` keeps it. ``peers`` are programs
for other engines, ``pipelines`` ours.
"""
