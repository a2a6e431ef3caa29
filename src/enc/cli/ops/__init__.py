"""Commands of operators and auditors: `enc node`, `enc witness`, `enc audit`, `enc bench`."""
