-- Fencing tokens in PostgreSQL (10 or newer): a write of a former holder of a lock, which comes late, changes nothing.
--
--   UPDATE stock SET amount = amount - 1 WHERE id = 7 AND zlock_fence('/jobs/nightly', :token);
--
-- No row changed: the lock is another's by now (or there is no such row). In a transaction of several statements, begin with
-- SELECT zlock_fence('/jobs/nightly', :token), and go on only if it is true.
--
-- The check and the write are one step: the function keeps the row of its lock until the transaction ends, so a later holder's
-- statements wait for it, and an earlier holder's come to see the higher token.

CREATE TABLE IF NOT EXISTS zlock_fences (
    path  text PRIMARY KEY,
    token bigint NOT NULL -- the highest that was used
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
