/**
 * Checks that the log is as it must be, while publishers and retention go on.
 *
 * Three things keep a sound log from being reported: everything is judged against meta of the same instant; the horizon
 * is the end of each partition when its turn comes, and what is published later is left to the next run; and whatever
 * looks wrong is read again before it is reported. Nothing here writes. Keys, fields and entries are read in steps of
 * about 1 ms of Redis; fsck-walk.ts says what a partition costs in memory.
 */

import type { Finding } from '../fsck-checks.ts'
import { checkHeads, checkHolds } from './fsck-heads.ts'
import { checkMeta, walkLog } from './fsck-walk.ts'
import type { Namespace } from './namespace.ts'
import type { LogSource } from './view.ts'

/** Everything that is wrong with the log, found one by one. A key of the wrong type cannot be read; it is reported. */
export async function* checkLog(source: LogSource, mistyped: ReadonlySet<string>): AsyncGenerator<Finding> {
  const { partitions } = await source.read(async (_, namespace: Namespace) => namespace)
  for (const [partition, keys] of partitions.entries()) {
    if (Object.values(keys).some((key) => mistyped.has(key))) continue
    yield* checkPartition(source, partition, partitions.length)
  }
}

async function* checkPartition(source: LogSource, partition: number, partitions: number): AsyncGenerator<Finding> {
  if (!(yield* checkMeta(source, partition))) return
  const walked = yield* walkLog(source, partition, partitions)
  yield* checkHeads(source, partition, partitions, walked)
  yield* checkHolds(source, partition)
}
