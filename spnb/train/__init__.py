"""One run or many: policies, engines, TRL's trainer, records."""
