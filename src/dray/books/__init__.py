"""What is taken, by whom: accounts, postings, the journal, trials.

An *account* keeps one thing that can be taken (node resources with pod slots and host ports; devices with their shares,
counters and groups; volumes on their way to a claim). A *holder* is who takes it: a pod, a claim, a promise, a rest. A
*posting* is what one holder has in one account, with its *standing*. Accounts change only through ``Books.post``.
"""
