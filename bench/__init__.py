"""Measurements. ``python -m bench`` runs the parts of the benchmark, ``python -m bench report``
renders them.

``parts`` lists them; each is a few ``Entry`` that ``rounds`` runs in alternation. ``contestants``
starts a system, ``contest`` holds the clock, ``checks`` says whether the answer was right,
``figures`` keeps it. ``peers`` are programs for other engines, ``pipelines`` ours.

A round of all parts takes about half an hour (``--list`` tells that of each), five of them about
three hours. Every run has a time-out: 5 minutes in A, B, G and H, 2.5 in C, 15 in D, 2 for peers in
E, 2 in F.
"""
