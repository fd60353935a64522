"""Report files: ``reading`` reads them (``tolerant_json``), ``records`` decodes their records."""
