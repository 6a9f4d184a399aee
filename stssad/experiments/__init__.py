"""The paper's evaluation: testbeds, baselines, benchmark. Labels are read here alone."""
