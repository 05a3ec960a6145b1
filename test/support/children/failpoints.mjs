/**
 * Named points at which a child process ends or stops itself, chosen by its parent through the environment:
 *
 *   FAILPOINT=name      at the first time it comes to `name`
 *   FAILPOINT=name:3    at the third time
 *   FAILPOINT_SIGNAL    SIGKILL (default), or SIGSTOP for a process that hangs and may come back
 *
 * Children put them into functions that they inject into the bus; the code under test knows nothing of them.
 */
import { writeSync } from 'node:fs'

const [wantedName, wantedHit = '1'] = (process.env.FAILPOINT ?? '').split(':')
const signal = process.env.FAILPOINT_SIGNAL ?? 'SIGKILL'
let hits = 0

export function failpoint(name) {
  if (name !== wantedName) return
  hits += 1
  if (hits !== Number(wantedHit)) return
  // Synchronous, because nothing that waits for the event loop would still be written.
  writeSync(1, `failpoint ${name}\n`)
  process.kill(process.pid, signal)
}
