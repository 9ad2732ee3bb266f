-- Fencing tokens in PostgreSQL (10 or newer): a late write by a former holder of a lock changes nothing.
--
--   UPDATE stock SET amount = amount - 1 WHERE id = 7 AND zlock_fence('/jobs/nightly', :token);
--
-- If no row changed, another holder has the lock by now, or there is no such row. Begin a transaction of
-- several statements with SELECT zlock_fence('/jobs/nightly', :token), and go on only if the result is true.
--
-- The check and the write are one step: the function locks the row of this path in zlock_fences until the
-- transaction ends. Until then the statements of every other holder of this lock wait. Then those of an
-- earlier holder see the higher token, and change nothing.

CREATE TABLE IF NOT EXISTS zlock_fences (
    path  text PRIMARY KEY,
    token bigint NOT NULL -- the highest token that was used for this path
);

CREATE OR REPLACE FUNCTION zlock_fence(lock_path text, fence_token bigint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE STRICT
AS $$
BEGIN
    INSERT INTO zlock_fences AS f (path, token) VALUES (lock_path, fence_token)
        ON CONFLICT (path) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token;
    RETURN FOUND;
END
$$;
