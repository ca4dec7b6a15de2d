"""Record batches: headers, records as columns, compression, old formats."""
