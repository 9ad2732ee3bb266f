-- Fencing tokens in MariaDB (10.5 or newer): a late write by a former holder of a lock changes nothing.
--
--   UPDATE stock SET amount = amount - 1 WHERE id = 7 AND zlock_fence('/jobs/nightly', :token);
--
-- If no row changed, another holder has the lock by now, or there is no such row. Begin a transaction of
-- several statements with SELECT zlock_fence('/jobs/nightly', :token), and go on only if the result is 1.
--
-- The check and the write are one step: the function locks the row of this path in zlock_fences until the
-- transaction ends. Until then the statements of every other holder of this lock wait. Then those of an
-- earlier holder see the higher token, and change nothing. Two holders may block each other. Then the server
-- ends the transaction of one of them with an error, and this transaction has changed nothing.
--
-- A server with a binary log needs log_bin_trust_function_creators=1 for CREATE FUNCTION, and
-- binlog_format=ROW or MIXED.

CREATE TABLE IF NOT EXISTS zlock_fences (
    path  varchar(700) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    token bigint NOT NULL -- the highest token that was used for this path
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
    -- FOR UPDATE reads the row as it is now. A plain SELECT reads a view of the transaction, which may be
    -- old.
    SELECT token INTO highest FROM zlock_fences WHERE path = lock_path FOR UPDATE;
    RETURN highest = fence_token;
END //
DELIMITER ;
