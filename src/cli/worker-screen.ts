/** The first screen of `busbar worker`: what runs, for which namespace, under which name. */
import { shownPath } from './invocation.ts'
import type { Session } from './session.ts'
import { version } from './version.ts'

export interface RunningBus {
  namespace: string
  worker: string
  runs: readonly string[]
}

export interface RunningWorker {
  /** Absolute. */
  modules: readonly string[]
  buses: readonly RunningBus[]
}

export function workerJson(running: RunningWorker): Record<string, unknown> {
  return { time: new Date().toISOString(), level: 'info', event: 'worker', version, pid: process.pid, ...running }
}

// Schedules are stored, and the leader's to fire: a bus with nothing else runs as well.
const nothingText =
  'no queue, no processor, no webhook, no task: call queue.work(…), bus.processor(…), bus.webhook(…) or bus.task(…) in the module, where the bus is made'

export function workerLines({ modules, buses }: RunningWorker, { out, io }: Session): string[] {
  const { bold, dim } = out.colors
  const line = (name: string, value: string) => `  ${dim(name.padEnd(9))}  ${value}`
  return [
    bold(`Busbar ${version}: a worker is running.`),
    '',
    line('Modules', modules.map((file) => shownPath(file, io.cwd)).join(', ')),
    ...buses.flatMap(({ namespace, worker, runs }) => [
      line('Namespace', namespace),
      line('Runs', runs.length > 0 ? runs.join(', ') : nothingText),
      line('Worker', worker),
    ]),
    '',
    dim('Ctrl-C stops it. The log:'),
  ]
}
