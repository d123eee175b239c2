"""What is taken, by whom: accounts, postings, the journal, trials."""
