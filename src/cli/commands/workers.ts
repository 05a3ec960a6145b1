/** `busbar workers`: the running processes of the namespace, what they hold, who leads, how many came and went. */
import type { WorkerFacts } from '../../index.ts'
import { timeText } from '../event-row.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { printable } from '../printable.ts'
import type { AddCommand } from '../program.ts'
import type { Session } from '../session.ts'
import { countText } from '../stream-tables.ts'
import { tableLines } from '../table.ts'

export const addWorkers: AddCommand = (program, run) => {
  program
    .command('workers')
    .description('show the running processes: what each runs and holds, and who leads')
    .action(run(listWorkers))
}

async function listWorkers({ out, withBus }: Session) {
  const { workers, ...counts } = await withBus((bus) => bus.workers())
  if (out.json) {
    for (const worker of workers) await out.printJson(worker)
    await out.printJson(counts)
    return exitCodes.ok
  }
  if (workers.length === 0) out.note('Nothing runs in this namespace.')
  else for (const line of workerRows(workers, out)) await out.print(line)
  const { joined, left, expired, replaced } = counts
  const ended = `${countText(left)} left, ${countText(expired)} expired, ${countText(replaced)} replaced`
  await out.print(`${countText(joined)} started, ${ended}.`)
  return exitCodes.ok
}

function workerRows(workers: readonly WorkerFacts[], { colors }: Output): string[] {
  const titles = ['name', 'leads', 'role', 'runs', 'version', 'host', 'last seen', 'holds']
  const rows = workers.map(({ name, leads, role, runs, version, host, lastSeen, holds }) =>
    [
      name,
      leads ? 'leads' : '-',
      role,
      runs.join(',') || '-',
      version,
      host,
      timeText(lastSeen),
      holds.map(({ processor, partitions }) => `${processor} ${rangesOf(partitions)}`).join('; ') || '-',
    ].map(printable),
  )
  return tableLines(
    titles.map((title) => ({ title })),
    rows,
    colors.bold,
  )
}

/** "0-3,7" for 0 1 2 3 7. */
function rangesOf(partitions: readonly number[]): string {
  const ranges: [first: number, last: number][] = []
  for (const partition of partitions) {
    const range = ranges.at(-1)
    if (range && range[1] === partition - 1) range[1] = partition
    else ranges.push([partition, partition])
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',')
}
