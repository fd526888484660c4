BEGIN TRANSACTION;
CREATE TABLE attnperf_cases (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	key_digest VARCHAR(64) NOT NULL, 
	suite TEXT NOT NULL, 
	backend TEXT NOT NULL, 
	workload TEXT NOT NULL, 
	label TEXT NOT NULL, 
	arch TEXT NOT NULL, 
	product TEXT NOT NULL, 
	nodeid TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "attnperf_cases" VALUES(1,'26edddb25f68656aec02b2da13956e7e4334c6f523306444947cba1ec040d2bb','cb7600669f3c7aa8593e2ec57483e7843f1a740d36b64abae27cd7b8569eadc8','prefill','native.eager','prefill-b1-s128-h4-d64-f16-causal','','sm_90','sample','suites/test_prefill.py::test_prefill[native.eager-prefill-b1-s128-h4-d64-f16-causal]');
INSERT INTO "attnperf_cases" VALUES(2,'d99111087a4969acd11f5b8adfd974261e5b7420b6e6668e9a835730ea5155c8','22ce73c5ab3226669f36654d5c8f13c29db358e54ad0a0eb41269890a66f20ec','prefill','native.sdpa_flash','prefill-b1-s128-h4-d64-f16-causal','','sm_90','sample','suites/test_prefill.py::test_prefill[native.sdpa_flash-prefill-b1-s128-h4-d64-f16-causal]');
CREATE TABLE attnperf_facts (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	facts JSON NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "attnperf_facts" VALUES(1,'01fec0c383983495494fd4f735bec940653199f4c6ddfb52485b6ac495432ee1','{"arch": "sm_90", "method": "1", "product": "sample", "timer": "graph"}');
INSERT INTO "attnperf_facts" VALUES(2,'b2fbc05dd5a85d598833759130ab96694b9da481467e2e8f7edee0cee498eeb6','{"driver": "580.00", "torch": "2.11.0", "triton": "3.6.0"}');
CREATE TABLE attnperf_measurements (
	case_id INTEGER NOT NULL, 
	started DOUBLE NOT NULL, 
	run_id INTEGER NOT NULL, 
	machine_id INTEGER NOT NULL, 
	environment_id INTEGER NOT NULL, 
	verdict VARCHAR(40) NOT NULL, 
	median_us DOUBLE, 
	baseline_us DOUBLE, 
	ratio DOUBLE, 
	process_us JSON NOT NULL, 
	PRIMARY KEY (case_id, started, run_id), 
	FOREIGN KEY(case_id) REFERENCES attnperf_cases (id), 
	FOREIGN KEY(run_id) REFERENCES attnperf_runs (id), 
	FOREIGN KEY(machine_id) REFERENCES attnperf_facts (id), 
	FOREIGN KEY(environment_id) REFERENCES attnperf_facts (id)
)
 WITHOUT ROWID

;
INSERT INTO "attnperf_measurements" VALUES(1,1767225600.0,1,1,2,'SAME',3.542,3.5403,1.00048018529503157658e+00,'[3.542]');
INSERT INTO "attnperf_measurements" VALUES(1,1767312000.0,2,1,2,'INCORRECT',NULL,NULL,NULL,'[]');
INSERT INTO "attnperf_measurements" VALUES(1,1767398400.0,3,1,2,'SAME',3.542,3.5403,1.00048018529503157658e+00,'[3.542]');
INSERT INTO "attnperf_measurements" VALUES(2,1767225600.0,1,1,2,'SAME',3.2743,3.2763,9.99389555291029574313e-01,'[3.2743]');
INSERT INTO "attnperf_measurements" VALUES(2,1767312000.0,2,1,2,'INCORRECT',NULL,NULL,NULL,'[]');
INSERT INTO "attnperf_measurements" VALUES(2,1767398400.0,3,1,2,'SAME',3.2743,3.2763,9.99389555291029574313e-01,'[3.2743]');
CREATE TABLE attnperf_runs (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	started DOUBLE NOT NULL, 
	run_id TEXT NOT NULL, 
	started_text TEXT NOT NULL, 
	commit_id TEXT NOT NULL, 
	branch TEXT NOT NULL, 
	source TEXT NOT NULL, 
	version TEXT NOT NULL, 
	mode TEXT NOT NULL, 
	appended TEXT NOT NULL, 
	complete BOOLEAN NOT NULL, 
	provenance JSON NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "attnperf_runs" VALUES(1,'b87276e5759612b0cb284eb809af884b35416fefa8c96eecc7d354fa946e09d4',1767225600.0,'run 0','2026-01-01T00:00:00+00:00','c0','main','attnperf','0.1.0','gate','2026-11-30T12:05:37+00:00',1,'{"branch": "main"}');
INSERT INTO "attnperf_runs" VALUES(2,'9556773b9952adce2ea63d433afcb637c44905f3761127148ed5b00ce082bb1a',1767312000.0,'run 1','2026-01-02T00:00:00+00:00','c1','main','attnperf','0.1.0','gate','2026-11-30T12:05:38+00:00',1,'{"branch": "main"}');
INSERT INTO "attnperf_runs" VALUES(3,'e5fe204bc7fca4fb19b2579b2116f6298ac22e29eaf5808b1d61b2c46fd2a812',1767398400.0,'run 2','2026-01-03T00:00:00+00:00','c2','main','attnperf','0.1.0','gate','2026-11-30T12:05:38+00:00',1,'{"branch": "main"}');
CREATE TABLE attnperf_schema (
	part VARCHAR(20) NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (part)
);
INSERT INTO "attnperf_schema" VALUES('history',1);
CREATE INDEX ix_attnperf_cases_key_digest ON attnperf_cases (key_digest);
CREATE INDEX ix_attnperf_measurements_machine_id ON attnperf_measurements (machine_id);
CREATE INDEX ix_attnperf_measurements_environment_id ON attnperf_measurements (environment_id);
CREATE INDEX ix_attnperf_measurements_run_id ON attnperf_measurements (run_id);
COMMIT;
