/** Real worker processes that run one processor over a namespace, and what they reported. */
import { type Child, spawnNode } from './process.ts'

/** Short enough for a test, long enough for a busy machine. */
export const quickGroup = { heartbeat: '100ms', expiry: '600ms', grace: '900ms', joinDelay: '60ms' }
export const expiryMs = 600
export const graceMs = 900

export interface WorkerPlace {
  redis: string
  namespace: string
}

export interface WorkerOptions {
  worker?: string
  partitions?: number
  /** Of the processor. */
  options?: Readonly<Record<string, unknown>>
  workMs?: number
  /** The same, but the processor is busy for so long. */
  busyMs?: number
  /** Type of the event that it publishes for each one it handles. */
  output?: string
  group?: Readonly<Record<string, string>>
}

export type Line = [kind: string, ...rest: unknown[]]

export interface WorkerProcess {
  readonly child: Child
  lines(): Line[]
  /** Events whose handling has ended, in order. */
  handled(): { partition: number; id: string; key: string; n: number }[]
  /** Partitions that it holds, by what it has reported. */
  held(): number[]
  count(kind: string): number
}

export async function startWorker(place: WorkerPlace, options: WorkerOptions = {}): Promise<WorkerProcess> {
  const child = spawnNode('processor.mjs', { args: [JSON.stringify({ group: quickGroup, ...place, ...options })] })
  await child.waitForLine('["ready"]')
  const lines = () => child.stdout.map((line) => JSON.parse(line) as Line)
  return {
    child,
    lines,
    handled: () =>
      lines()
        .filter(([kind]) => kind === 'end')
        .map(([, partition, id, key, n]) => ({ partition, id, key, n }) as ReturnType<WorkerProcess['handled']>[0]),
    held() {
      const held = new Set<number>()
      for (const [kind, fields] of lines()) {
        const { partition } = (fields ?? {}) as { partition: number }
        if (kind === 'stream.gained') held.add(partition)
        if (kind === 'stream.lost') held.delete(partition)
      }
      return [...held].sort((a, b) => a - b)
    },
    count: (kind) => lines().filter(([its]) => its === kind).length,
  }
}

/** Per key the numbers in the order in which they were first handled. */
export function firstTimes(handled: readonly { key: string; n: number }[]): Map<string, number[]> {
  const byKey = new Map<string, number[]>()
  for (const { key, n } of handled) {
    const numbers = byKey.get(key) ?? []
    if (!numbers.includes(n)) byKey.set(key, [...numbers, n])
  }
  return byKey
}
