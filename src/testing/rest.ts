/**
 * Waiting until a bus has come to rest: no command of it is without an answer, and no answer sets off another.
 *
 * A command that is sent in one turn of the event loop has no answer before the next turn, so looking at every turn
 * misses none. Hints come on a connection of their own, a moment after the answer to the publish that caused them: a
 * PING on every connection is answered only after whatever Redis had to say there before.
 *
 * Handlers are not waited for: one may itself wait for a time that only a later advance brings. Nor are the sockets and
 * files of the application.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Connection } from '../redis/connection.ts'

// What never comes to rest, such as a handler that publishes without end, must not hold a test up for ever.
const longestMs = 2_000
// Promises that were made to wait for one another across setImmediate and nextTick need a few turns.
const quietTurns = 3

/** Answers the function that waits. Calls wait one after the other: the PINGs of one would disturb the next. */
export function createRest(connections: () => readonly Connection[]): () => Promise<void> {
  let resting = Promise.resolve()
  return () => {
    resting = resting.then(() => comeToRest(connections()))
    return resting
  }
}

async function comeToRest(connections: readonly Connection[]): Promise<void> {
  const until = performance.now() + longestMs
  while (performance.now() < until) {
    while (isWaiting(connections) && performance.now() < until) await nextTurn()
    await Promise.all(connections.filter(({ isReady }) => isReady).map(({ redis }) => redis.ping().catch(() => '')))
    if (await staysQuiet(connections)) return
  }
}

async function staysQuiet(connections: readonly Connection[]): Promise<boolean> {
  for (let turn = 0; turn < quietTurns; turn += 1) {
    await nextTurn()
    if (isWaiting(connections)) return false
  }
  return true
}

/** Whether something was sent and has no answer yet, or is still to be sent on a connection that is being made. */
function isWaiting(connections: readonly Connection[]): boolean {
  return connections.some(({ redis, isReady }) => redis.commandQueue.length > 0 || (!isReady && redis.status !== 'end'))
}
