-- Fencing tokens in MariaDB (10.5 or newer): a write of a former holder of a lock, which comes late, changes nothing.
--
--   UPDATE stock SET amount = amount - 1 WHERE id = 7 AND zlock_fence('/jobs/nightly', :token);
--
-- No row changed: the lock is another's by now (or there is no such row). In a transaction of several statements, begin with
-- SELECT zlock_fence('/jobs/nightly', :token), and go on only if it is 1.
--
-- The check and the write are one step: the function keeps the row of its lock until the transaction ends, so a later holder's
-- statements wait for it, and an earlier holder's come to see the higher token. Two holders may meet in a deadlock, which the
-- server ends with an error for one of them: its transaction is over, and has changed nothing.
--
-- A server with a binary log needs log_bin_trust_function_creators=1 to create it, and binlog_format=ROW or MIXED.

CREATE TABLE IF NOT EXISTS zlock_fences (
    path  varchar(700) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    token bigint NOT NULL -- the highest that was used
) ENGINE = InnoDB;

DROP FUNCTION IF EXISTS zlock_fence;

DELIMITER //
CREATE FUNCTION zlock_fence(lock_path varchar(700) CHARACTER SET ascii COLLATE ascii_bin, fence_token bigint)
    RETURNS boolean NOT DETERMINISTIC MODIFIES SQL DATA
BEGIN
    DECLARE highest bigint;
    IF lock_path IS NULL OR fence_token IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO zlock_fences (path, token) VALUES (lock_path, fence_token)
        ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token));
    -- Not the transaction's view, which may be old, but the row as it is now.
    SELECT token INTO highest FROM zlock_fences WHERE path = lock_path FOR UPDATE;
    RETURN highest = fence_token;
END //
DELIMITER ;
