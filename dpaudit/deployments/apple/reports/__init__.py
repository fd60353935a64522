"""Report files: ``reading`` reads them one by one (``tolerant_json``), ``records`` decodes their records into arrays."""
