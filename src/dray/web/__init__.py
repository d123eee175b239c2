"""The page: what the asking functions say, over HTTP, for people who would rather look than read."""
