-- Loads what `tidegauge export --records --format csv -o tables` wrote, also if some of it was loaded
-- before: psql --set=ON_ERROR_STOP=1 --file=postgres-load.sql, in the folder that has tables/.
BEGIN;
CREATE TEMP TABLE new_runs (LIKE runs) ON COMMIT DROP;
CREATE TEMP TABLE new_loops (LIKE loops) ON COMMIT DROP;
CREATE TEMP TABLE new_decisions (LIKE decisions) ON COMMIT DROP;
\copy new_runs FROM 'tables/runs.csv' CSV HEADER
\copy new_loops FROM 'tables/loops.csv' CSV HEADER
\copy new_decisions FROM 'tables/decisions.csv' CSV HEADER
-- A text that a spreadsheet would run as a formula has an apostrophe before it.
UPDATE new_runs SET
    run = regexp_replace(run, '^''', ''),
    parent = regexp_replace(parent, '^''', ''),
    agent = regexp_replace(agent, '^''', ''),
    agent_name = regexp_replace(agent_name, '^''', ''),
    task_group = regexp_replace(task_group, '^''', ''),
    memory = regexp_replace(memory, '^''', '');
UPDATE new_loops SET run = regexp_replace(run, '^''', '');
UPDATE new_decisions SET
    run = regexp_replace(run, '^''', ''),
    message = regexp_replace(message, '^''', '');
DELETE FROM runs USING new_runs WHERE runs.run = new_runs.run;
DELETE FROM loops USING new_runs WHERE loops.run = new_runs.run;
INSERT INTO runs TABLE new_runs;
INSERT INTO loops TABLE new_loops;
INSERT INTO decisions TABLE new_decisions EXCEPT TABLE decisions;
COMMIT;
