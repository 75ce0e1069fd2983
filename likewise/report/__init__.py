"""What a run became, as one page that opens anywhere."""
