"""Who is asking: tokens, client certificates, and somebody who speaks for somebody else."""
