// A tool for pi: reads one of the user's notes.
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

const NOTES: Record<string, string> = {
	"todo.txt": "Buy bread, water the plants, and call Clara about the room on Monday.",
	"plan.txt": "First the roof, then the windows, then the garden. Hugo brings the ladder on Friday.",
};

export default function (pi: ExtensionAPI) {
	pi.registerTool({
		name: "read_note",
		label: "Read a note",
		description: "Reads one of the user's notes.",
		parameters: {
			type: "object",
			properties: { name: { type: "string", enum: Object.keys(NOTES), description: "The name of the note." } },
			required: ["name"],
			additionalProperties: false,
		} as any,
		async execute(_id, params: { name: string }) {
			return { content: [{ type: "text", text: NOTES[params.name] }], details: {} };
		},
	});
}
