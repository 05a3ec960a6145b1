/**
 * A worker with one processor, `search`. Prints one JSON array per line: ["ready"], ["begin" | "end", partition, id, key,
 * n] for each event around its handling, and [name, fields] for each telemetry event of groups and streams.
 *
 * Argument: JSON { redis, namespace, worker, group, partitions, options of the processor, workMs, busyMs, output }.
 * Lines on stdin: "block <ms>" keeps the event loop busy for so long.
 */
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../../dist/index.js'

const { options = {}, workMs = 0, busyMs = 0, output, ...bus } = JSON.parse(process.argv[2])
const say = (...line) => void process.stdout.write(`${JSON.stringify(line)}\n`)

const onTelemetry = ({ name, fields }) => {
  if (/^(stream|group)\./.test(name)) say(name, fields)
}

const worker = busbar({ ...bus, onTelemetry })
worker.processor('search', { match: 'in.>', ...options }, async (events, { partition }) => {
  for await (const { id, key, tenant, data } of events) {
    say('begin', partition, id, key, data.n)
    if (workMs > 0) await sleep(workMs)
    if (busyMs > 0) stayBusy(busyMs)
    if (output) await worker.publish(output, { n: data.n, from: id }, { tenant, key })
    say('end', partition, id, key, data.n)
  }
})

function stayBusy(ms) {
  const until = performance.now() + ms
  while (performance.now() < until);
}

createInterface({ input: process.stdin }).on('line', (line) => stayBusy(Number(/^block (\d+)$/.exec(line)[1])))

await worker.run()
say('ready')
