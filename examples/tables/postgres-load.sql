-- Loads what `tidegauge export --records --format csv -o tables` wrote, also if some of it was loaded
-- before: psql --set=ON_ERROR_STOP=1 --file=postgres-load.sql, in the folder that has tables/.
BEGIN;
CREATE TEMP TABLE new_runs (LIKE runs) ON COMMIT DROP;
CREATE TEMP TABLE new_decisions (LIKE decisions) ON COMMIT DROP;
\copy new_runs FROM 'tables/runs.csv' CSV HEADER
\copy new_decisions FROM 'tables/decisions.csv' CSV HEADER
DELETE FROM runs USING new_runs WHERE runs.run = new_runs.run;
DELETE FROM loops USING new_runs WHERE loops.run = new_runs.run;
INSERT INTO runs TABLE new_runs;
\copy loops FROM 'tables/loops.csv' CSV HEADER
INSERT INTO decisions TABLE new_decisions EXCEPT TABLE decisions;
COMMIT;
